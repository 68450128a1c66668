"""What TensorBoard shows of a run, from --logdir; TensorBoard itself need not be installed."""
