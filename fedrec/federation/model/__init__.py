"""What a method is made of: its parameters, its interface, and plug-ins around it."""
