"""From dygraph Python to a PIR program, with proof that the step is safe."""
