"""How well a model does with what we give it, on the user's own machine: quality, where `bench` is speed."""
