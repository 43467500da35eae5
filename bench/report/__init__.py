"""Pages and pictures of figures: the documents' tables, and `./dev report`."""
