"""The chips that do more than their contract can say, a file each."""
