"""One look after another at the devices: sampled, remembered, judged, reported."""
