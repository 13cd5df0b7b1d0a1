"""What a schedule must be and give: the proof of its form, and the reference interpreter."""
