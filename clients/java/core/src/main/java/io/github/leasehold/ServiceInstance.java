package io.github.leasehold;

import io.github.leasehold.internal.json.Json;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;

/**
 * A registered instance of a service.
 *
 * @param name name of the instance, without the service
 * @param details text of its registration
 * @param holder the process that registered it
 * @param tokenNumber number of its token; a later registration of the same name has a higher one
 */
public record ServiceInstance(String name, String details, String holder, long tokenNumber) {
    static List<ServiceInstance> list(LeaseholdClient client, String service) {
        List<ServiceInstance> instances = new ArrayList<>();
        String cursor = "";
        do {
            Map<String, Object> page = client.query("/v1/leases?prefix=" + Body.encode(service) + "&limit=1000" + cursor);
            for (Map<String, Object> resource : Json.objects(page, "resources")) {
                for (Map<String, Object> lease : Json.objects(resource, "leases")) {
                    String name = Body.require(lease, "resource");
                    if (!name.startsWith(service + "/")) {
                        continue;
                    }
                    instances.add(new ServiceInstance(
                            name.substring(service.length() + 1),
                            Json.text(lease, "metadata").orElse(""),
                            Json.text(lease, "holder").orElse(""),
                            Long.parseLong(Body.require(lease, "token_number"))));
                }
            }
            Object next = page.get("next_cursor");
            cursor = next == null ? "" : "&cursor=" + Body.encode(String.valueOf(next));
        } while (!cursor.isEmpty());
        instances.sort(Comparator.comparing(ServiceInstance::name));
        return instances;
    }
}
