/** Fence for servlets: {@link io.github.leasehold.servlet.FenceFilter}. */
package io.github.leasehold.servlet;
