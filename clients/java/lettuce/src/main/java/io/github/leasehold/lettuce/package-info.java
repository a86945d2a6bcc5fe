/** Fence for Redis and Valkey with Lettuce: {@link io.github.leasehold.lettuce.RedisFence} runs commands under a token. */
package io.github.leasehold.lettuce;
