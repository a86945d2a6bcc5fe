package io.github.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.leasehold.internal.json.Json;
import io.github.leasehold.internal.json.JsonException;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** The JSON reader is strict, and reads what the writer writes. */
class JsonTest {
    @Test
    void valuesAreRead() throws Exception {
        Map<String, Object> object = Json.parseObject(" {\"a\":[1,-2,0.5,1e3,true,false,null],\"b\":{\"c\":\"\\u00e4\\n\\\"\\\\/\"},\"d\":\"ä😀\"} ");
        assertEquals(Arrays.asList(1L, -2L, 0.5, 1000.0, true, false, null), object.get("a"));
        assertEquals(Map.of("c", "ä\n\"\\/"), object.get("b"));
        assertEquals("ä😀", object.get("d"));
        assertEquals(9_223_372_036_854_775_807L, Json.parse("9223372036854775807"));
        assertEquals(1.8446744073709552E19, Json.parse("18446744073709551615"));
    }

    @Test
    void everythingElseIsRefusedWithItsPosition() {
        List<String> invalid = List.of("", "{", "{\"a\"}", "{\"a\":1,}", "[1,]", "[1 2]", "01", "1.", ".5", "+1", "1e", "nul", "tru", "\"a", "\"\\x\"", "\"\\u12g4\"",
                "\"\t\"", "{\"a\":1}x", "{a:1}", "{\"a\":1,\"a\":2}", "NaN", "'a'", "[".repeat(100) + "]".repeat(100));
        for (String text : invalid) {
            JsonException error = assertThrows(JsonException.class, () -> Json.parse(text), text);
            assertTrue(error.getMessage().contains(" at character "), error.getMessage());
        }
        assertThrows(JsonException.class, () -> Json.parseObject("[]"));
    }

    @Test
    void whatIsWrittenIsReadAgain() throws Exception {
        Map<String, Object> value = Body.map("text", "a\"b\\c\nd\u0001ä😀", "list", List.of(1L, true, List.of()), "map", Map.of(), "none", null);
        assertEquals(value, Json.parse(Json.write(value)));
        assertEquals("{\"a\":null}", Json.write(java.util.Collections.singletonMap("a", null)));
    }
}
