"""The loss around a point: curvature, slices, stationary points, paths between minima."""
