package io.github.leasehold;

import java.util.Map;

/**
 * One resource of an {@link LeaseholdClient#acquireAll acquireAll}, and how it is acquired.
 */
public final class ResourceAccess {
    private final String resource;
    private final boolean shared;
    private final Integer units;

    private ResourceAccess(String resource, boolean shared, Integer units) {
        this.resource = Body.name("resources", resource);
        this.shared = shared;
        this.units = units;
    }

    /**
     * The resource for this holder alone.
     *
     * @param resource name of the resource
     * @return the access
     */
    public static ResourceAccess exclusive(String resource) {
        return new ResourceAccess(resource, false, null);
    }

    /**
     * The resource together with other readers.
     *
     * @param resource name of the resource
     * @return the access
     */
    public static ResourceAccess shared(String resource) {
        return new ResourceAccess(resource, true, null);
    }

    /**
     * Units of the resource's capacity.
     *
     * @param resource name of the resource
     * @param units number of units
     * @return the access
     */
    public static ResourceAccess units(String resource, int units) {
        return new ResourceAccess(resource, false, units);
    }

    Map<String, Object> body() {
        return Body.map("resource", resource, "shared", shared ? true : null, "units", units);
    }
}
