"""`./dev report`: every bench once, one after the other, and a page of the results.

plan has the list, run runs it, machine describes the computer, page and charts draw. Standard
library only: ./dev imports it before anything is installed.
"""
