"""Continuous batching: the work queue, and the lanes (threads) that run its batches on the device."""
