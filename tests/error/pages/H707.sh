printf '%s\n' 'hwgen: 1' 'name: cpu' 'memories: {heap: {kind: workspace, shared_by: kernel, allocate: "{{ type }} *{{ name }} = malloc({{ bytes }});", free: "free({{ name }});"}}' 'processor: {default_memory: heap}' 'code: {includes: ["<stdlib.h>"]}' > cpu.yaml
hwgen simulate --spec cpu --workload relu --engine c
