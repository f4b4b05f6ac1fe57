"""Making the shares hold on a node: one backend a mode, CPU limits, and the component that drives them."""
