"""What TensorBoard shows of a run, from --logdir; hyper-parameters need TensorBoard itself."""
