"""The evidence on one page, from the results of its runs alone: `make report`."""
