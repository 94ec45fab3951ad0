module kvasir/test/validation

go 1.26.0
