"""The engine that compiles the local training of a method from the code it already has."""
