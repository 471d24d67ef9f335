"""The loss landscape: curvature and slices at a point, stationary points, paths between minima."""
