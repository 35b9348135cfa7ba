"""What a decoder is: its shape, its vocabulary, and the plain form that faster ones are held against."""
