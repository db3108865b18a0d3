"""Tests with workers on further hosts: network namespaces with addresses of their own."""
