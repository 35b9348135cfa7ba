"""Models: catalog, files, tokenizers and chat formats."""
