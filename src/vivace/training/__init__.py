"""Training the model for the edit loop: data, LoRA, evaluation. An extra (`vivace[train]`), of torch alone.

Owns what makes an adapter. The program that edits never imports it (tests/test_layering.py).
"""
