"""Scripts for developers: a release, and the editor that tests use."""
