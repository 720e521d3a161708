hwgen init my_chip --from accelforge without_tag.yaml
