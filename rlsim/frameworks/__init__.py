"""Frameworks' own configurations: read into scenarios, written from scenarios, and their keys beside ours."""
