"""The pages, a module each with one function that draws it."""
