"""Networks: back-propagation and radial bases."""
