/* The peer of the round-trip benchmark: libmodbus in a plain loop, one register a request. */
#include <modbus.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    long polls = atol(argv[3]);
    modbus_t *ctx = modbus_new_tcp(argv[1], atoi(argv[2]));
    if (ctx == NULL || modbus_set_slave(ctx, 1) != 0 || modbus_connect(ctx) != 0)
        return 1;
    struct timespec from, to;
    uint16_t value;
    unsigned long sum = 0;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (long i = 0; i < polls; i++) {
        if (modbus_read_registers(ctx, 7, 1, &value) != 1)
            return 1;
        sum += value;
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    modbus_close(ctx);
    modbus_free(ctx);
    if (sum != 7UL * polls)
        return 1;
    printf("%f\n", (to.tv_sec - from.tv_sec) + (to.tv_nsec - from.tv_nsec) / 1e9);
    return 0;
}
