"""The script that Streamlit runs for each look at a page."""

import locate

locate.module("app").main()
