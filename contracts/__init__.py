"""Units, messages and subjects: the language that all parts of gpubus speak. Pure; msgspec only."""
