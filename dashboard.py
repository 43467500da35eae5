"""The dashboard of python/dashboard: `streamlit run dashboard.py [-- PATHS]`, `lumen dashboard`."""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
# First, since this file has the name of the package.
sys.path.insert(0, str(Path(__file__).resolve().parent / "python"))

from dashboard.app import main

main()
