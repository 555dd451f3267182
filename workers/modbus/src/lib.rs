//! Modbus for sensor-poll.
