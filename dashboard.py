"""The dashboard: `streamlit run dashboard.py [-- PATHS]`, or `lumen dashboard`. It lives in"
" dashboard/."""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parent / "python"))

# The folder comes before this file where both have the name.
from dashboard.app import main

main()
