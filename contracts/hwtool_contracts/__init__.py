"""What registers promise: the vocabulary of effects, the contract model, the judge, the loader, the errors."""
