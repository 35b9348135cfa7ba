"""What a new text of a Python file newly breaks. None of the user's code is run or imported."""
