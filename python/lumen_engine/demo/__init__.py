"""`lumen demo`: a photographed receipt, read by PP-OCR through a server of its own.

Needs the packages of the extra `demo`. The models come from the index of packages, by pip.
"""
