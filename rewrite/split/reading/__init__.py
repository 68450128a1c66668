"""The step as it came: where its batch is, its reads of variables, the order of its writes."""
