"""What a store's files say about it before it is opened: sizes, version, what is lost."""
