module kvasir/test/endurance

go 1.26.0
