"""What a training's communication cost: counted, told to loggers, and said in a few lines."""
