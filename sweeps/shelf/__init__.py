"""The sweeps in a storage folder, looked after: which there are, how far, ended, tidied up."""
