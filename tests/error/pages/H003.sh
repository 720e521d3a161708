hwgen check vtaa
