/** Spring Integration over Leasehold: {@link io.github.leasehold.spring.LeaseholdLockRegistry}. */
package io.github.leasehold.spring;
