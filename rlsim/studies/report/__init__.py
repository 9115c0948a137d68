"""One self-contained HTML page from what ``--out`` saved.

``saved`` reads the files, ``tables`` and ``figures`` say what is shown, ``page`` puts it into the template.
"""
