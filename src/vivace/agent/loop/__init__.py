"""A task: a model that calls tools until it is done."""
