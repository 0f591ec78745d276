"""How `torch.compile` reaches this compiler: as a backend of Dynamo (`backend.py`), which hands
over what it has captured, or by our own capture in its place (`install.py`)."""
