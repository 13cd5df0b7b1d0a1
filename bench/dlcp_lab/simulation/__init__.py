"""The core of many hosts in virtual time, with simulated networks between them."""
