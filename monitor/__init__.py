"""One process per GPU node: what cards there are, that we are alive, what is used."""
