package leasehold

// ServersOf returns the addresses of a client, for tests.
func ServersOf(c *Client) []string { return c.config.servers }
