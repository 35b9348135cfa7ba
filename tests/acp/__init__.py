"""Tests of the face for ACP clients."""
